"""Plain data: the words of the field as types. No module here reads or writes anything."""
