module github.com/postrider/postrider/cmd/postrider

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/jackc/pgx/v5 v5.12.0
	github.com/nats-io/nats-server/v2 v2.15.2
	github.com/nats-io/nats.go v1.55.0
	github.com/postrider/postrider v0.0.0
	github.com/schollz/progressbar/v3 v3.19.1
	github.com/spf13/cobra v1.10.2
	golang.org/x/term v0.47.0
	modernc.org/sqlite v1.61.1
)

replace github.com/postrider/postrider => ../..
