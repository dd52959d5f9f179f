"""The parts of a page: facts about the run, findings, stories, tables, runs side by side."""
