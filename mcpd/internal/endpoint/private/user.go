package private

import (
	"fmt"
	"os"
)

// CheckUser reports why the user that runs this process must not own private
// things: root on behalf of somebody else (their later files would be root's,
// and they would be locked out), or a uid that stands for strangers too.
func CheckUser() error {
	euid := os.Geteuid()
	if sudo := os.Getenv("SUDO_UID"); euid == 0 && sudo != "" && sudo != "0" {
		return &UnsafeError{CodeSudo, os.Args[0],
			"runs as root for uid " + sudo + " (SUDO_UID is set); what it makes would lock that user out",
			"run it without sudo"}
	}
	stranger, err := ambiguous(uint32(euid))
	if err != nil {
		return err
	}
	if stranger {
		return &UnsafeError{CodeIdentity, os.Args[0],
			fmt.Sprintf("runs as uid %d, which also stands for every user outside this user namespace", euid),
			"map your user into the namespace (for example: unshare --map-current-user)"}
	}
	return nil
}
