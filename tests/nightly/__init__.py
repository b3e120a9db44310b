"""Other projects' programs, run at exact versions on the lab's cluster; minutes to build."""
