// Package legacytokencleaner invalidates, and later deletes, the Secrets with service account
// tokens that were generated for ServiceAccounts and that nothing uses: the API server labels
// Secrets with the day of the last use of their token.
package legacytokencleaner
