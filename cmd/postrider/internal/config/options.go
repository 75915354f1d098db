package config

// PublisherOptions are the options that the query of a publisher's URL, and publisher.options, may hold: those of the
// broker's own package.
var PublisherOptions = []string{
	"stream", "prefix", "subjects", "check_only", "replicas", "dedupe_window", "window", "ack_wait", "name",
	"creds", "nkey", "user", "password", "token", "ca", "cert", "key",
}
