"""From a request to a library that serves it, stored or built."""
