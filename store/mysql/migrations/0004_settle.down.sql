DROP PROCEDURE IF EXISTS {prefix}commit_settled;
