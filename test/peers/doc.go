// Package peers proves the wire with foreign clients: client-go's informers,
// and kubectl in an old and a new version, on Podium's own binaries.
package peers
