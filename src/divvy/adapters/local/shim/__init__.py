"""The shim: the supervisor process of one run. It outlives the control plane and keeps the run's record.

This package is started as a program of its own (``python -I -S``), many times a day, so it imports nothing
but a few modules of the standard library, and never anything else of Divvy.

    main       the life of a run, from the claim to the end record
    ladder     warn, SIGTERM, SIGKILL: when to climb, as a pure state machine
    child      what happens between fork and exec: identity, groups, directory, logs
    processes  who belongs to the run, and how all of them are signalled
    clocks     the clocks of the machine
    record     files that are either whole or absent
"""
