module github.com/postrider/postrider/resilience

go 1.26.0

require (
	github.com/postrider/postrider v0.0.0
	github.com/sony/gobreaker/v2 v2.4.0
	golang.org/x/time v0.16.0
)
