"""Writers: everything that tells others what was found."""
