"""Pure planners: `plan(snapshot, context) -> Plan`. They meet only in the pipeline."""
