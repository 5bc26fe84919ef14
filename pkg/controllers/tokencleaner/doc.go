// Package tokencleaner deletes expired bootstrap tokens.
package tokencleaner
