DROP PROCEDURE IF EXISTS {prefix}publish;
