"""What is wrong with a machine for a build, an installation or a run, why, and the fix."""
