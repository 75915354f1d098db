DROP TABLE IF EXISTS {prefix}watermark_marks;
