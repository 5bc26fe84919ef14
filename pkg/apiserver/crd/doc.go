// Package crd serves the custom resources that CustomResourceDefinitions define. A
// Kind interprets a definition; a Follower reads the definitions from the watch cache
// of its API server, serves their kinds, and writes the status of the definitions.
// Every API server runs a Follower: all come to the same result.
package crd
