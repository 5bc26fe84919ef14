// Package bootstraptoken reads and writes bootstrap tokens: the short-lived
// secrets by which a new machine and a cluster know each other for the first
// time. The server authenticates by them, controllers sign with them and clean
// them up, the CLI makes them.
package bootstraptoken
