-- Positions stay: programs of the version before read them too.
DO 0;
