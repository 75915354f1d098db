DROP TABLE {prefix}watermark_marks;
