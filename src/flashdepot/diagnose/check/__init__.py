"""Does a binary fit an environment? Decided by its bytes: nothing is loaded, nothing imported, no GPU needed."""
