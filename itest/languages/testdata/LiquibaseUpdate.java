import java.nio.file.Path;
import java.sql.DriverManager;
import liquibase.Contexts;
import liquibase.Liquibase;
import liquibase.database.jvm.JdbcConnection;
import liquibase.resource.DirectoryResourceAccessor;

/** liquibase --changelog-file=changelog.xml update, or rollback of all, in the folder DIR */
public class LiquibaseUpdate {
    public static void main(String[] args) throws Exception {
        try (var accessor = new DirectoryResourceAccessor(Path.of(args[1]));
                var db = new JdbcConnection(DriverManager.getConnection(System.getenv("JDBC_URL")));
                var liquibase = new Liquibase("changelog.xml", accessor, db)) {
            if (args[0].equals("update")) {
                liquibase.update(new Contexts());
            } else {
                liquibase.rollback(Integer.parseInt(args[2]), new Contexts(), new liquibase.LabelExpression());
            }
        }
    }
}
