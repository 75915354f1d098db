-- Positions stay: programs of the version before read them too.
SELECT 1;
