// Says in the console of a hub that notifies nobody how to change that.

import { make, say } from "../static/lib.js";
import { line, makeDialog, open, sentence } from "./dialog.js";

const FILE = `publicUrl: ${location.origin}
routes:
  - {name: phone, url: "ntfys://fire-CHOOSE-A-LONG-NAME"}`;

const code = (text) => make("code", "", text);
const paragraph = (...parts) => { const made = make("p"); made.append(...parts); return made; };

line.toggleAttribute("data-bad", true);
say(sentence, "No message goes to anybody.");
say(open, "Declare routes …");
const dialog = makeDialog([
  paragraph("This hub sends alarms to nobody: they are shown here, and sound where the siren is on. To get them on a phone:"),
  paragraph("1. Install the app ntfy on it, and subscribe to a topic with a long name that nobody can guess."),
  paragraph("2. Write ", code("notify.yaml"), ". The address must be one that the phone reaches."),
  make("pre", "", FILE),
  paragraph("3. Start the hub with it: ", code("embereye up FLEET.yaml --notify notify.yaml"), ". In the chart, ", code("hub.notify.config"), " is its content."),
  paragraph("4. Send a test here, or with ", code("embereye notify test phone"), "."),
  paragraph("E-mail, SMS, chat services and over 100 others work the same way."),
]);
open.onclick = () => dialog.showModal();
