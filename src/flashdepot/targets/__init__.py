"""Systems that libraries run on: how host code is compiled and linked for each, names, floors."""
