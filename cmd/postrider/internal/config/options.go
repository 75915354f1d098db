package config

// PublisherOptions are the options that the query of a publisher's URL, and publisher.options, may hold.
var PublisherOptions = []string{"stream"}
