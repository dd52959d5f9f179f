"""Closed-form predictions from papers, as pure functions: Ware19's share and Cao19's loss cliff."""
