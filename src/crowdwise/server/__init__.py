"""``crowdwise serve``: campaigns behind HTTP, with a page to label on and a page to watch (extra ``serve``).

================  ==========================================================================================
``configuration`` the settings, from the command line, the environment and a TOML file
``store_tables``  the tables of the store; ``database`` opens it, ``group_commit`` writes
``..._rows``      what is read and written of one table: functions of a connection
``live_...``      the model of a campaign in memory, which follows the votes in the store
``service``       what routes call: one object for a process
``routes_...``    the API and the pages; ``caller`` says who asks and may do what
================  ==========================================================================================
"""
