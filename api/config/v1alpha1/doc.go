// Package v1alpha1 defines the configuration files of Podium, in the group
// config.podium.dev. Cluster describes what `podium cluster create` creates.
// Decode parses such a file strictly, sets the defaults and validates it; it
// returns all errors at once, each with the path of its field.
package v1alpha1
