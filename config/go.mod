module github.com/postrider/postrider/config

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/postrider/postrider v0.0.0
)
