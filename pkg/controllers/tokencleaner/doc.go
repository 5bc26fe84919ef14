// Package tokencleaner deletes bootstrap tokens whose time is over.
package tokencleaner
