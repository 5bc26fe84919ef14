// Package devicetainteviction evicts pods whose claims have devices with NoExecute taints, of
// their ResourceSlice or of DeviceTaintRules: without a matching toleration of the claim's
// request at once, with tolerationSeconds that long after the taint was added. It reports
// in the status of each rule how far that is.
package devicetainteviction
