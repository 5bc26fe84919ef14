// Package storagetest proves that a storage.Store keeps the contract. Every
// implementation's tests call Run.
package storagetest
