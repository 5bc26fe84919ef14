// Package checkpoint keeps the state of the parts of the kubelet in files. Those with a
// checksum can be read by upstream's kubelet, and the reverse.
package checkpoint
