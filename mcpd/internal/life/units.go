package life

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// UnitFiles returns the text of interlock.service and interlock.socket for
// systemd's user manager, and of a launchd agent, for the daemon that is started
// with argv, whose first word is the absolute path of the program, and whose
// socket has the absolute path socket.
func UnitFiles(argv []string, socket string) (service, socketUnit, plist string) {
	command := systemdWord(argv[0])
	var words strings.Builder
	for i, word := range argv {
		if i > 0 {
			command += " " + strings.ReplaceAll(systemdWord(word), "$", "$$")
		}
		fmt.Fprintf(&words, "\t\t<string>%s</string>\n", xmlText(word))
	}
	service = fmt.Sprintf(serviceTemplate, command)
	socketUnit = fmt.Sprintf(socketTemplate, strings.ReplaceAll(socket, "%", "%%"))
	plist = fmt.Sprintf(plistTemplate, words.String())
	return service, socketUnit, plist
}

// KillMode=mixed leaves the servers to the daemon while it drains; whatever is
// left in the control group afterwards is killed. Delegate lets the daemon make a
// group for its servers, so that it can end them as a whole. TimeoutStopSec is for the usual
// drain: a daemon with a longer one asks for the time when it begins to end
// (NotifyStopping), which launchd has no way to do.
const serviceTemplate = `[Unit]
Description=interlock, one daemon for all MCP clients
Requires=interlock.socket
After=interlock.socket

[Service]
Type=notify
ExecStart=%s
ExecReload=kill -HUP $MAINPID
KillMode=mixed
Delegate=yes
TimeoutStopSec=30
WatchdogSec=60
Restart=on-failure
RestartSec=1
UMask=0077

[Install]
WantedBy=default.target
Also=interlock.socket
`

const socketTemplate = `[Unit]
Description=interlock, the socket of its daemon

[Socket]
ListenStream=%s
SocketMode=0600
DirectoryMode=0700
Accept=no

[Install]
WantedBy=sockets.target
`

// 63 is 077 in decimal, all that a property list has.
const plistTemplate = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>interlock</string>
	<key>ProgramArguments</key>
	<array>
%s	</array>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>Umask</key>
	<integer>63</integer>
	<key>ExitTimeOut</key>
	<integer>30</integer>
</dict>
</plist>
`

// systemdWord quotes one word of a command line as systemd.service(5) reads
// it: C escapes in double quotes, %% for a percent sign. In arguments, but not
// in the program's path, a dollar sign is written twice as well.
func systemdWord(s string) string {
	return `"` + strings.NewReplacer(
		`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "%", "%%",
	).Replace(s) + `"`
}

func xmlText(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a bytes.Buffer takes everything
	return b.String()
}
