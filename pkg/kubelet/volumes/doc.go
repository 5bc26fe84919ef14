// Package volumes sets up and tears down the volumes of a node's pods.
//
// A Driver handles the volumes of one source; drivers.go lists the drivers. All state
// that a restarted kubelet needs is on disk below <root>/pods/<uid>, in upstream's
// layout:
//
//	volumes/<driver>/<volume>        what containers mount
//	plugins/<driver>/<volume>        what the driver keeps beside it
//	volume-subpaths/<volume>/<key>   bind mounts of sub-paths
package volumes
