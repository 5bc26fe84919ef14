// Package memory implements storage.Store in this process: a multi-version map with
// the same observable semantics as etcd. It uses mutexes and channels only and
// starts no goroutine, so that it runs inside a testing/synctest bubble.
package memory
