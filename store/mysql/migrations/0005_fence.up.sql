-- Nothing yet: the number is kept for a migration that is on its way.
DO 0;
