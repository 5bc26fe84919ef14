// Package bootstraptoken reads and writes bootstrap tokens: the short-lived secrets
// by which a new machine and a cluster authenticate each other. The API server
// authenticates with them, controllers sign with them and remove expired ones, and
// the CLI creates them.
package bootstraptoken
