
-- May also decide about held keys and parked messages, which a running relay carries out, discard dead letters, pause
-- relays, and start redrives and replays, which a relay drives. It adds to the audit and cannot read it.
GRANT INSERT ON {prefix}audit TO {role};
GRANT INSERT, UPDATE ON {prefix}decisions TO {role};
GRANT INSERT, UPDATE ON {prefix}redrives TO {role};
GRANT INSERT, UPDATE, DELETE ON {prefix}records TO {role};
GRANT UPDATE (checks) ON {prefix}cursors TO {role};
GRANT UPDATE ON {prefix}held TO {role};
GRANT UPDATE ON {prefix}meta TO {role};
GRANT UPDATE (state, resolved_at, resolved_by, resolution, redrive, fingerprint) ON {prefix}dead TO {role};
