"""Does it fit? One judge, one table of rules, and the ways to what a thing needs: its name, its manifest, its bytes."""
