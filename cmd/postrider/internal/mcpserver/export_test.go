package mcpserver

// ToolOf is the tool of an operation of the API.
func ToolOf(path string) string { return names[path] }
