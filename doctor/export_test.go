package doctor

// Space is what Disk finds of a file system.
func Space(path string, free, size int64) []Finding { return space(path, free, size) }
