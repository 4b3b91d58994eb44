// What the page remembers about itself, as opposed to about conversations.

export type ThemeChoice = "system" | "light" | "dark";

export interface Settings {
  theme: ThemeChoice;
  sidebar: boolean; // on wide screens
  engine_panel: boolean;
  open: string[]; // conversations in columns, left to right
  sessions: boolean; // keep a session for each conversation where the server offers it
}

const NAME = "cellm-settings";

export function loadSettings(): Settings {
  const settings: Settings = {
    theme: "system",
    sidebar: true,
    engine_panel: window.innerWidth >= 1100,
    open: [],
    sessions: true,
  };
  let stored: unknown = null;
  try {
    stored = JSON.parse(localStorage.getItem(NAME) ?? "null");
  } catch {
    // Not ours, or no storage: the defaults hold.
  }
  if (typeof stored !== "object" || stored === null) return settings;
  const fields = stored as Record<string, unknown>;
  if (fields["theme"] === "light" || fields["theme"] === "dark") settings.theme = fields["theme"];
  if (typeof fields["sidebar"] === "boolean") settings.sidebar = fields["sidebar"];
  if (typeof fields["engine_panel"] === "boolean") settings.engine_panel = fields["engine_panel"];
  if (typeof fields["sessions"] === "boolean") settings.sessions = fields["sessions"];
  if (Array.isArray(fields["open"])) {
    settings.open = fields["open"].filter((id): id is string => typeof id === "string");
  }
  return settings;
}

export function saveSettings(settings: Settings): void {
  try {
    localStorage.setItem(NAME, JSON.stringify(settings));
  } catch {
    // No storage: they hold until the page is closed.
  }
}

export function applyTheme(theme: ThemeChoice): void {
  if (theme === "system") {
    delete document.documentElement.dataset["theme"];
  } else {
    document.documentElement.dataset["theme"] = theme;
  }
}
