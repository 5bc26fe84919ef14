// Package operator does what operators do, on node containers with systemd as
// their first process: it installs the package, follows deploy/README.md, loses
// and restores a control plane, and takes everything away again.
package operator
