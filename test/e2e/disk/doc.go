// Package disk fills the disk of a node, or makes it read-only, while other pods run on
// it. The kubelet's directory is a small file system of its own:
//
//	NODE_DISK=600M hack/with-cluster go test -count=1 ./test/e2e/disk
package disk
