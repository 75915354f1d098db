
-- May also decide about held keys and parked messages, which a running relay carries out, discard dead letters, pause
-- relays, and start redrives and replays, which a relay drives. It adds to the audit and cannot read it.
grant insert on {prefix}audit to {role};
grant insert, update on {prefix}decisions, {prefix}redrives to {role};
grant insert, update, delete on {prefix}records to {role};
grant update on {prefix}leases, {prefix}held to {role};
grant update (state, resolved_at, resolved_by, resolution, fingerprint) on {prefix}dead to {role};
