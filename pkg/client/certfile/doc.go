// Package certfile reads certificates from files and reads them again when the
// files change, so that a rotated certificate needs no restart.
package certfile
