-- A redrive whose steps keep failing says why, and ends.

-- The steps that have failed since one succeeded, and why the last of them did.
ALTER TABLE {prefix}redrives ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {prefix}redrives ADD COLUMN cause TEXT NOT NULL DEFAULT '';
