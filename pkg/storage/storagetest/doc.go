// Package storagetest tests the contract of a storage.Store. The tests of every
// implementation call Run.
package storagetest
