DROP TABLE {prefix}attempts;
